"""The evidence: what reproduces the papers, the leaderboard and the benchmarks of orthornn's results.

papers         one function a table or figure of a paper
tasks          the tasks that only papers and boards have; the command finds them by the entry points in pyproject.toml
leaderboard, leaderboard_runs, leaderboard_options   systems at one budget: the page | the runs | a row
own_data       the default for tables, measured on many sets
group_words    words of finite groups
exact_machines words of finite automata, and exact machines from what a network learned
certificates  certified accuracy, and bounds next to a semidefinite program
irregular_time networks on sequences of which samples are dropped
popgym         agents that remember, on POPGym
bench          the kernels verified and timed
files          files that only these read: idx, downloads
cli            the commands that are more than a module's `main`

orthornn imports nothing from here, and no wheel holds it: `pip install -e evidence` in the folder of the sources.
"""
