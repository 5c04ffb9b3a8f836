"""What joins dueline to other libraries; each module needs its own extra."""
