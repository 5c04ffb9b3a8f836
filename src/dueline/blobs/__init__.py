"""Places of blobs: a folder, or what fsspec reaches."""
