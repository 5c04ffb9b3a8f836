"""Lives of streams: producers, members of groups, whoever cuts the stream anew."""
