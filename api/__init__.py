"""The doors: settings, wiring, the command line, the reports."""
