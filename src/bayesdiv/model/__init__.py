"""What is random: modules turned Bayesian, their posteriors and their priors."""
