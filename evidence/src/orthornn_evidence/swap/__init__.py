"""The plain swap: the scripts of tutorials, in which only the constructor of the recurrent layer changes."""
