"""Filter propagation: brokers learn from unwanted notifications which filters to send towards a publisher."""
