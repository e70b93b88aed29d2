"""What every study shares: command line, results, pictures, data, networks."""
