"""For people with tables and images: experiments, runs, search, reports and the command line."""
