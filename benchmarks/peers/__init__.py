"""tagwise beside other software: the same data, the same number of threads, one at a time."""
