"""Tables, plots and pages about fitted models; what draws needs matplotlib (``pip install 'tagwise[plots]'``)."""
