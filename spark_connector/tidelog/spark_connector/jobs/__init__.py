"""PySpark programs for the heavy work on topics: `tidelog spark run JOB`."""
