"""What a target column can be: one file each, with a class of the file's name, see `app.task`."""
