"""torch's settings of float32 products, changed and put back to exactly what was there.

torch 2.9 has two interfaces to the same settings: the old flags (`set_float32_matmul_precision`,
`allow_tf32`) and one value for each backend and operator (`fp32_precision`), which may inherit. An old
getter raises in a job whose new values no old flag can say. So what the job reads stays readable: the old
flags are used where they can be read, else the new values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from ...live_torch.handler_errors import let_through
from ..registry import Refused, Undo

Place = tuple[str, str]  # backend, operator
GENERIC: Place = ("generic", "all")
MATMUL: Place = ("cuda", "matmul")
CONVOLUTIONS: tuple[Place, ...] = (("cuda", "conv"), ("cuda", "rnn"))
PLACES: tuple[Place, ...] = (MATMUL, *CONVOLUTIONS, ("mkldnn", "matmul"))
INHERITED = "none"  # as it is written; where nothing is to be inherited it is read so too


class Float32Settings:
    """The settings of one process."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._read: Callable[..., str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)
        self._write: Callable[..., object] | None = getattr(torch._C, "_set_fp32_precision_setter", None)

    def matmul(self) -> str | None:
        """The old flag for products; None where it can't be read."""
        try:
            return str(self._torch.get_float32_matmul_precision())
        except RuntimeError:
            return None

    def convolutions(self) -> bool | None:
        """The old flag for cuDNN; None where it can't be read."""
        try:
            return bool(self._torch.backends.cudnn.allow_tf32)
        except RuntimeError:
            return None

    def multiplies_in_tf32(self) -> bool:
        """Whether products on a GPU use TF32 now."""
        if self._read is not None:
            return self._read(*MATMUL) == "tf32"
        return self.matmul() != "highest"

    def lowest_matmul(self) -> str:
        """The lowest precision of products on any device, in the words of the old flag."""
        flag = self.matmul()
        if flag is not None or self._read is None:
            return flag or "highest"
        held = {self._read(*place) for place in PLACES if place[1] == "matmul"}
        return "medium" if "bf16" in held else "high" if "tf32" in held else "highest"

    def allow_tf32(self) -> Undo:
        """Products and convolutions on a GPU in TF32."""

        def change() -> None:
            if self.matmul() is not None:
                self._torch.set_float32_matmul_precision("high")
            else:
                self._set(MATMUL, "tf32")
            if self.convolutions() is False:
                self._torch.backends.cudnn.allow_tf32 = True
            elif self.convolutions() is None:
                for place in CONVOLUTIONS:  # what inherits could not be made to inherit again
                    if self._own(place) not in (INHERITED, "tf32"):
                        self._set(place, "tf32")

        return self._changed(change)

    def set_matmul(self, wanted: str) -> Undo:
        """The old flag for products.

        Raises:
            Refused: the job uses the new values.
        """
        if self.matmul() is None:
            raise Refused("the job sets fp32_precision, which this setting would contradict")
        return self._changed(lambda: self._torch.set_float32_matmul_precision(wanted))

    @contextmanager
    def exact(self) -> Iterator[None]:
        """All bits of float32 products and convolutions, for a moment."""
        if self._read is None:
            flags = self.matmul(), self.convolutions()
            self._torch.set_float32_matmul_precision("highest")
            self._torch.backends.cudnn.allow_tf32 = False
            try:
                yield
            finally:
                self._torch.set_float32_matmul_precision(flags[0])
                self._torch.backends.cudnn.allow_tf32 = flags[1]
            return
        # What inherits is reached from above, and never written: it would not inherit any more.
        backends = [(place[0], "all") for place in PLACES]
        own = {place: self._own(place) for place in (*dict.fromkeys(backends), *PLACES)}
        written = [place for place, value in own.items() if value not in (INHERITED, "ieee")]
        former = self._holds(GENERIC)
        try:
            for place in (GENERIC, *written):
                self._set(place, "ieee")
            yield
        finally:
            for place in written:
                self._set(place, own[place])
            self._set(GENERIC, former)

    def _changed(self, change: Callable[[], None]) -> Undo:
        """Change; the undo puts back what still is as the change left it.

        Raises:
            Refused: it could not be changed; everything is as before.
        """
        places = PLACES if self._read is not None else ()
        own = {place: self._own(place) for place in places}
        before = self._picture()
        flags = self.matmul(), self.convolutions()
        try:
            change()
        except Exception as error:
            self._put_back(flags, own, self._picture(), before)
            let_through(error)
            raise Refused(f"float32 products can't be set: {error}") from error
        ours = self._picture()

        def undo() -> None:
            self._put_back(flags, own, ours, before)

        return undo

    def _put_back(
        self,
        flags: tuple[str | None, bool | None],
        own: dict[Place, str],
        ours: dict[object, object],
        before: dict[object, object],
    ) -> None:
        now = self._picture()
        still = {what for what in ours if ours[what] == now[what] and ours[what] != before[what]}
        matmul, convolutions = flags
        if matmul is not None and "matmul" in still:
            self._torch.set_float32_matmul_precision(matmul)
        if convolutions is not None and "convolutions" in still:
            self._torch.backends.cudnn.allow_tf32 = convolutions
        for place, value in own.items():
            if place in still:
                self._set(place, value)

    def _picture(self) -> dict[object, object]:
        picture: dict[object, object] = {"matmul": self.matmul(), "convolutions": self.convolutions()}
        if self._read is not None:
            picture.update({place: self._read(*place) for place in PLACES})
        return picture

    def _set(self, place: Place, value: str) -> None:
        if self._write is None:
            raise Refused("this torch has no fp32_precision")
        self._write(*place, value)

    def _own(self, place: Place) -> str:
        """What was set for this operator itself; INHERITED where it follows its backend, or all backends.

        torch tells only what holds. So what may be inherited from is changed for a moment.
        """
        backend = place[0], "all"
        if self._follows(place, GENERIC):
            return INHERITED
        if place != backend and not self._follows(backend, GENERIC) and self._follows(place, backend):
            return INHERITED
        return self._holds(place)

    def _follows(self, place: Place, parent: Place) -> bool:
        """Whether a value is that of another, which has one of its own."""
        former = self._holds(parent)
        other = "tf32" if self._holds(place) == "ieee" else "ieee"
        self._set(parent, other)
        try:
            return self._holds(place) == other
        finally:
            self._set(parent, former)

    def _holds(self, place: Place) -> str:
        if self._read is None:
            raise Refused("this torch has no fp32_precision")
        return self._read(*place)
