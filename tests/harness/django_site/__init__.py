"""A project of Django whose tasks are jobs, configured at its import."""

import django
from django.conf import settings

BACKEND = "dueline.contrib.django.DuelineBackend"

if not settings.configured:
    apps = ["admin", "auth", "contenttypes", "messages", "sessions"]
    processors = [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            *[f"django.contrib.{name}" for name in apps],
            "dueline.contrib.django",
            "tests.harness.django_site",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        ROOT_URLCONF="tests.harness.django_site.urls",
        SECRET_KEY="of these tests",  # noqa: S106  (it protects nothing)
        TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"STORE": "memory://"}}},
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": processors},
            }
        ],
        USE_TZ=True,
    )
    django.setup()
