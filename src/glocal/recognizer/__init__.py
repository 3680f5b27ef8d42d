"""Around the recognizer of ``glocal_runtime``: models of torch modules, checks on labelled pictures, files of answers,
and the scikit-learn classifier.
"""
