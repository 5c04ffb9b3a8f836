"""The version of dueline."""

VERSION = "0.1.0"
