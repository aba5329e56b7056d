"""The errors orthornn raises.

Each states what was expected, what was received and what to do. Each is also the built-in error that PyTorch or Python
would raise in its place, so that code written for torch.nn.RNN catches what it caught before.
"""

from __future__ import annotations


class OrthornnError(Exception):
    """The base of every error of this package."""


class ArgumentError(OrthornnError, ValueError):
    """An argument outside the allowed range: a size, a margin, an unknown name."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a wrong type, such as a size that is no integer or an input that is no tensor."""


class ReadOnlyError(OrthornnError, AttributeError):
    """An attribute that the parameters were made from was set after construction."""


class ShapeError(OrthornnError, ValueError, RuntimeError):
    """A tensor has the wrong number of dimensions or the wrong size in one of them."""


class DTypeError(OrthornnError, TypeError, ValueError, RuntimeError):
    """A tensor has a dtype that cannot be used here, or two dtypes that must agree do not."""


class DeviceError(OrthornnError, RuntimeError):
    """Tensors on different devices that must be on one, or a device without a kernel."""


class NonFiniteError(OrthornnError, ValueError, ArithmeticError):
    """A value that must be finite is NaN or infinite."""


class NotOnGroupError(OrthornnError, ValueError):
    """A matrix does not belong to the set that a parametrization spans; the message names its distance."""


class BackendError(OrthornnError, RuntimeError):
    """The kernel backend that was asked for is not built, or cannot run this case."""


class TransformError(OrthornnError, NotImplementedError):
    """A torch.func transform, or a higher derivative, that has no correct result."""


class DataError(OrthornnError, OSError):
    """A data file is missing, truncated, corrupt or of another format than was asked for."""


class ConfigError(OrthornnError, ValueError):
    """A configuration has unknown, missing or contradictory entries; the message lists all of them."""


class CheckpointError(OrthornnError, OSError):
    """A checkpoint cannot be written, or what was written is truncated, changed or of another run."""


class LockedError(OrthornnError, OSError):
    """Another process is writing this run."""


class Interrupted(OrthornnError):
    """A signal ended the run after its state was saved; the message names the command that resumes it.

    signal: its number.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class OrthornnWarning(UserWarning):
    """Warning of an unexpected condition under which the computation continues."""


class MissingPackageError(OrthornnError, ImportError):
    """A package that is not part of the core is needed for this and is not installed."""

    @classmethod
    def named(cls, what: str, package: str, extra: str) -> MissingPackageError:
        """Return the error that names the extra to install.

        Args:
            what: What needs the package.
            package: The package that is missing.
            extra: The extra of orthornn that provides it.
        """
        return cls(
            f"Expected the package {package} for {what}, but it is not installed. Install the extra {extra}: "
            f"pip install '.[{extra}]' in the folder of orthornn's sources."
        )


class VerificationError(OrthornnError, ArithmeticError):
    """A result differs from its reference by more than rounding explains; whatever rests on it is withheld."""
