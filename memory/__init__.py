"""What happened: the database, the trajectories, the embeddings and their index."""
