"""What is published about the data sets: which classes are in which split, and CIFAR-100's classes and superclasses.

FC100 is divided by superclass, so its list names superclasses; ``published_classes`` names the classes themselves.
"""

from __future__ import annotations

from glocal.data.splits import PUBLISHED, Splits, published_split

__all__ = ["CIFAR100", "PUBLISHED", "SUPERCLASSES", "canonical_name", "published_classes", "published_split"]

SUPERCLASSES: dict[str, tuple[str, ...]] = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
CIFAR100 = tuple(sorted(name for names in SUPERCLASSES.values() for name in names))  # its label i is CIFAR100[i]
_SPELLED = {name.replace("-", ""): name for name in PUBLISHED}


def canonical_name(name: str) -> str:
    """The name of a published data set however it is spelled (CIFAR_FS, miniImageNet); any other name as it is."""
    return _SPELLED.get(name.lower().replace("-", "").replace("_", ""), name)


def published_classes(name: str) -> Splits:
    """train, val and test classes of a published data set, FC100's too."""
    splits = published_split(name)
    if name != "fc100":
        return splits
    return {split: tuple(sorted(c for each in names for c in SUPERCLASSES[each])) for split, names in splits.items()}
