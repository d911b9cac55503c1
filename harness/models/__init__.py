"""Ways to reach a language model, one file each."""
