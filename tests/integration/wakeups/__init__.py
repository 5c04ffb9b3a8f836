"""Wake-ups between processes, through sockets."""
