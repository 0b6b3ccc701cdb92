"""The library's own estimators, and the contract that they share with the baselines."""
