"""The workbench: everything that trains, compares and reports networks of the library.

systems     the recurrent cores that the papers compare, by name, with a readout
tasks       data, loss, metric and the loss of the trivial baseline
files       tables, arrays, sounds and archives, as they are read
training    a frozen configuration in, a run directory out
report      tables, figures, the HTML page
papers      one function a table or figure of a paper
bench       the kernels verified and timed
compare, sweep, predict    several models; many runs; a trained network in use
cli         the command `orthornn`

The library (every other module of orthornn) imports nothing from here, except `orthornn.load` when it is called. Most of
it needs the packages of `pip install 'orthornn[cli]'`.
"""
