"""The protocol rules, as small exhaustive models."""
