"""For people with tables and images: data, experiments, estimators and the command line."""
