"""What keeps a job from starting: one module for each kind of cause."""
