"""Small programs that read what is dangerous to read. They run as processes of their own and import nothing of ours."""
