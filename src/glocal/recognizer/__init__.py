"""Practice: enroll a folder of photos, ask about others, save, load, explain.

``GlocalClassifier``, the scikit-learn estimator, is in ``glocal.recognizer.estimator``: scikit-learn is an extra.
"""

from glocal.recognizer.eye import Unreadable
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.recognizer import Recognizer

__all__ = ["Prediction", "Recognizer", "Unreadable"]
