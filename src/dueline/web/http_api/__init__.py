"""The HTTP API: jobs, queues and claims for programs in any language."""
