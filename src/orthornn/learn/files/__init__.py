"""Reading of data from files and data frames: tables, arrays, sounds and archives, with errors that name the place."""
