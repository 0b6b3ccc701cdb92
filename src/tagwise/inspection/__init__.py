"""What a fitted model knows: explanations, calibrated probabilities, thresholds, reliability and nearest labels."""
