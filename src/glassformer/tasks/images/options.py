"""What a recipe says of images, for every task that reads them: size, colours, and how pixels become numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from glassformer.errors import ConfigurationError, InputError
from glassformer.interop.checkpoints import read_object
from glassformer.interop.huggingface import PREPROCESSOR, Checkpoint
from glassformer.models.family import Blueprint, blueprint_of
from glassformer.recipe import Recipe
from glassformer.recipe.values import Count, Fraction, Number, Place, Whole
from glassformer.tasks.task import Task

MOST_PATCHES = 1 << 16  # of an image: each looks at all others
PROCESSORS = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil", "ViTFeatureExtractor")  # alike
IGNORED = {  # what is made of an image does not depend on these keys
    *("processor_class", "_processor_class", "_valid_processor_keys", "crop_size", "pad_size", "default_to_square"),
    *("do_convert_rgb", "data_format", "input_data_format", "device", "return_tensors", "disable_grouping"),
}


def _grey_or_three(colours: int) -> int:
    if colours not in (1, 3):
        raise ValueError(f"task.colours is {colours}: an image has 1 colour or 3")
    return colours


class PictureTask(Task):
    """A task that reads images. A model reads (pixel / 255 - mean) / deviation."""

    size: Count = Field(32, description="pixels on each side")
    colours: Annotated[Whole, AfterValidator(_grey_or_three)] = Field(
        3, description="1: shades of grey; 3: red, green and blue"
    )
    others: Literal["resize", "refuse"] = Field("resize", description="what happens to images of another size")
    mean: Fraction = Field(0.5, description="what is subtracted from each pixel, of 1")
    deviation: Annotated[Number, Field(ge=1e-3, le=1e3)] = Field(0.5, description="what each is then divided by")
    shift: Place = Field(0, description="pixels that a training image is moved by at most, to each side")

    def check(self, recipe: Recipe) -> None:
        """Images consist of whole patches, and not of words."""
        model = recipe.model
        if self.size % getattr(model, "patch", 1):
            raise ValueError(f"task.size {self.size} does not divide into model.patch {model.patch}")
        patches = (self.size // getattr(model, "patch", self.size)) ** 2
        if patches > MOST_PATCHES:
            raise ValueError(
                f"task.size {self.size} makes {patches:,} patches of model.patch {model.patch}: "
                f"at most {MOST_PATCHES:,} can be read"
            )

    def check_checkpoint(self, blueprint: Blueprint) -> None:
        """It expects images of one size."""
        size, colours = blueprint.arguments["image"], blueprint.arguments["colours"]
        if (size, colours) != (self.size, self.colours):
            raise ConfigurationError(
                f"model.pretrained expects {size} x {size} images: set task.size = {size} and task.colours = {colours}"
            )

    def image_given(self) -> dict[str, Any]:
        """The arguments of a family that images decide."""
        return {"image": self.size, "colours": self.colours}

    def kept_of(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """Images as the checkpoint's model reads them, scaled as its preprocessor_config.json says."""
        arguments, path = blueprint_of(checkpoint.model).arguments, checkpoint.folder / PREPROCESSOR
        found = read_object(path, "") if path.is_file() else {}
        size, mean, deviation = arguments["image"], 0.5, 0.5
        if found.get("do_normalize", True):
            mean, deviation = (_one(path, key, found.get(key, 0.5)) for key in ("image_mean", "image_std"))
        else:
            mean, deviation = 0.0, 1.0
        wanted = {
            "do_rescale": (True,),
            "do_center_crop": (False, None),
            "do_pad": (False, None),
            "resample": (2,),
            "size": (size, {"height": size, "width": size}),
            **dict.fromkeys(("image_processor_type", "feature_extractor_type"), (*PROCESSORS, None)),
        }
        read = {"do_resize", "do_normalize", "image_mean", "image_std", "rescale_factor", *wanted, *IGNORED}
        if unknown := [key for key, value in found.items() if key not in read and value]:
            hint = "delete it if the pixels do not depend on it"
            raise InputError(f"{path}: {unknown[0]} is {found[unknown[0]]!r:.80}, which is not supported: {hint}")
        for key, values in wanted.items():
            if key in found and found[key] not in values:
                raise InputError(f"{path}: {key} is {found[key]!r}, which is not supported: expected {values[0]!r}")
        if abs(found.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
            raise InputError(f"{path}: rescale_factor is {found['rescale_factor']!r}, and not 1 / 255")
        others = "resize" if found.get("do_resize", True) else "refuse"
        scale = {"mean": mean, "deviation": deviation}
        options = {"size": size, "colours": arguments["colours"], "others": others, **scale}
        try:
            type(self)(kind=self.kind, **options)
        except ValidationError:
            raise InputError(f"{path}: image_mean {mean} or image_std {deviation} is out of range") from None
        return {"task": options}

    def preprocessor(self) -> dict[str, Any]:
        """How images are resized and scaled, as `transformers` is told it."""
        return {
            "image_processor_type": "ViTImageProcessor",
            "do_convert_rgb": self.colours == 3,
            "do_resize": self.others == "resize",
            "size": {"height": self.size, "width": self.size},
            "resample": 2,  # bilinear
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [self.mean] * self.colours,
            "image_std": [self.deviation] * self.colours,
        }


def _one(path: Path, key: str, value: Any) -> float:
    """A number that all colours share."""
    values = value if isinstance(value, list) else [value]
    if not values or any(type(each) not in (int, float) or each != values[0] for each in values):
        raise InputError(f"{path}: {key} is {value!r}: expected one number, the same for all colours")
    return float(values[0])
