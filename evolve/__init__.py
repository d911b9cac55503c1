"""The loop that changes the house: propose, try, decide."""
