"""Small programs that read dangerous formats. They run as separate processes and import nothing of this project."""
