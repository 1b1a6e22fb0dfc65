"""Questions to the database, each answered by an index; a session in, values of ``views`` out."""
