"""Practice: enroll a folder of photos, ask about others, save, load, explain.

``GlocalClassifier``, the scikit-learn estimator, is in ``glocal.recognizer.estimator``: scikit-learn is an extra.
"""

from glocal.recognizer.eye import Unreadable
from glocal.recognizer.recognizer import Recognizer
from glocal_runtime.prediction import Prediction

__all__ = ["Prediction", "Recognizer", "Unreadable"]
