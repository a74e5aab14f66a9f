"""Stand-in for torchvision, for text models only: every name is an empty class, so that SGLang's
image-processor modules import.  Kept in its own folder, put on PYTHONPATH only where the real one is absent."""

import sys
import types

__version__ = "0.0.0"


class _Names(type):
    def __getattr__(cls, name):  # InterpolationMode.BICUBIC and the like
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Stub(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (), {})


for _n in ("transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional", "io", "ops"):
    _m = _Stub(f"{__name__}.{_n}")
    _m.__spec__ = types.SimpleNamespace(
        name=_m.__name__, loader=None, origin="stub", parent=_m.__name__, submodule_search_locations=[]
    )
    sys.modules[_m.__name__] = _m
for _n in ("transforms", "io", "ops"):
    globals()[_n] = sys.modules[f"{__name__}.{_n}"]
for _p, _c in (("transforms", "functional"), ("transforms", "v2"), ("transforms.v2", "functional")):
    setattr(sys.modules[f"{__name__}.{_p}"], _c, sys.modules[f"{__name__}.{_p}.{_c}"])
