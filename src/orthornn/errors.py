"""The errors orthornn raises.

Each message states what was expected, what was received and what to do. Each class also derives from the built-in error
that PyTorch or Python would raise instead, so code written for torch.nn.RNN catches the same errors as before.
"""

from __future__ import annotations


class OrthornnError(Exception):
    """The base of every error of this package."""


class ArgumentError(OrthornnError, ValueError):
    """An argument is outside the allowed range: a size, a margin, an unknown name."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type, such as a size that is not an integer or an input that is not a tensor."""


class ReadOnlyError(OrthornnError, AttributeError):
    """An attribute that determined the parameters was set after construction."""


class ShapeError(OrthornnError, ValueError, RuntimeError):
    """A tensor has the wrong number of dimensions or the wrong size in one of them."""


class DTypeError(OrthornnError, TypeError, ValueError, RuntimeError):
    """A tensor has a dtype that cannot be used here, or two dtypes that must agree do not."""


class DeviceError(OrthornnError, RuntimeError):
    """Tensors that must be on one device are on different devices, or a device has no kernel."""


class NonFiniteError(OrthornnError, ValueError, ArithmeticError):
    """A value that must be finite is NaN or infinite."""


class NotOnGroupError(OrthornnError, ValueError):
    """A matrix does not belong to the set that a parametrization spans; the message names its distance."""


class BackendError(OrthornnError, RuntimeError):
    """The requested kernel backend is not built, or cannot run this case."""


class TransformError(OrthornnError, NotImplementedError):
    """A torch.func transform, or a higher derivative, has no correct result."""


class DataError(OrthornnError, OSError):
    """A data file is missing, truncated, corrupt, or in another format than requested."""


class ConfigError(OrthornnError, ValueError):
    """A configuration has unknown, missing or contradictory entries; the message lists all of them."""


class CheckpointError(OrthornnError, OSError):
    """A checkpoint cannot be written, or it is truncated, modified, or from another run."""


class LockedError(OrthornnError, OSError):
    """Another process is writing this run."""


class Interrupted(OrthornnError):
    """A signal ended the run after its state was saved; the message names the command that resumes it.

    signal: Number of the signal.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class OrthornnWarning(UserWarning):
    """Warning about an unexpected condition under which the computation continues."""


class MissingPackageError(OrthornnError, ImportError):
    """A required package that is not part of the core is not installed."""

    @classmethod
    def named(cls, what: str, package: str, extra: str) -> MissingPackageError:
        """Return the error that names the extra to install.

        Args:
            what: The part that needs the package.
            package: Name of the missing package.
            extra: The extra of orthornn that provides it.
        """
        return cls(
            f"Expected the package {package} for {what}, but it is not installed. Install the extra {extra}: "
            f"pip install '.[{extra}]' in the folder of orthornn's sources."
        )


class VerificationError(OrthornnError, ArithmeticError):
    """A result differs from its reference by more than rounding explains; results based on it are withheld."""
