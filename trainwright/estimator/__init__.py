"""A job's configuration compared with its image, and the code or request that starts the job."""
