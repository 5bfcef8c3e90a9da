"""What checks are made of: each raises Wrong with the values that were wrong."""


class Wrong(AssertionError):
    pass


class LeftOut(Exception):
    """A check that does not apply to this machine or library; the text says why."""


def same(got, wanted, what):
    if got != wanted:
        raise Wrong(f"{what} is {got!r}, not {wanted!r}")


def true(good, what):
    if not good:
        raise Wrong(what)


def same_rows(got, wanted, what):
    """The same dtype, shape and bits; `wanted` is a CPU tensor, `got` may be anywhere."""
    got = got.detach().cpu()
    same((got.dtype, tuple(got.shape)), (wanted.dtype, tuple(wanted.shape)), f"{what}: dtype and shape")
    different = (got != wanted).nonzero()
    if len(different):
        place = tuple(different[0].tolist())
        raise Wrong(f"{what}: {len(different)} of {wanted.numel()} values are wrong, the first at {place}: "
                    f"{got[place].item()}, not {wanted[place].item()}")


def raises(kinds, call, what):
    """The call raises one of these exceptions; the exception is returned."""
    try:
        result = call()
    except kinds as error:
        return error
    except Exception as error:
        raise Wrong(f"{what} raises {type(error).__name__} ({error}), not {kinds}") from None
    raise Wrong(f"{what} raises nothing and gives {result!r}")
