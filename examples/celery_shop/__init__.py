"""A shop in Django: its tasks on Celery (before.py), and on dueline (after.py).

Why: what a port changes is read best in two files that do the same. `project.py` is the part that
stays: settings, models, and the services that the shop calls.
"""
