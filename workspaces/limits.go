package workspaces

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Limits bound a workspace. A zero field is not set: the layer below decides
// (Limits.Over), DefaultLimits at the bottom.
type Limits struct {
	// CPU is a Kubernetes quantity of cores: "2", "500m".
	CPU string
	// Memory and Storage are Kubernetes quantities of bytes: "4Gi". Storage is the disk
	// of the workspace.
	Memory, Storage string
	// PIDs is how many processes and threads there may be at once.
	PIDs int64
	// Lifetime is how long the workspace lives, from its creation, used or not.
	Lifetime time.Duration
}

// DefaultLimits is what holds where no layer sets a limit.
func DefaultLimits() Limits {
	return Limits{CPU: "1", Memory: "2Gi", Storage: "4Gi", PIDs: 512, Lifetime: Lifetime}
}

// What Validate accepts.
const (
	cpuMaxMillis = 1_000_000 // 1,000 cores
	bytesMin     = 1 << 20   // 1 MiB; "512m", which is half a byte, is a mistake
	bytesMax     = 1 << 50   // 1 PiB
	pidsMax      = 1 << 22   // the kernel's own PID_MAX_LIMIT
	lifetimeMax  = 30 * 24 * time.Hour
)

// Over lays l over lower: a field that l does not set is lower's.
func (l Limits) Over(lower Limits) Limits {
	return Limits{
		CPU:      cmp.Or(l.CPU, lower.CPU),
		Memory:   cmp.Or(l.Memory, lower.Memory),
		Storage:  cmp.Or(l.Storage, lower.Storage),
		PIDs:     cmp.Or(l.PIDs, lower.PIDs),
		Lifetime: cmp.Or(l.Lifetime, lower.Lifetime),
	}
}

// Validate says what is wrong with the fields that are set: CPU is up to 1,000 cores, Memory and
// Storage are 1Mi to 1Pi, PIDs up to 4,194,304, Lifetime up to 30 days, and all are positive. The
// error matches ErrInvalidInput.
func (l Limits) Validate() error {
	millis, err := l.CPUMillis()
	if err != nil {
		return err
	}
	if millis > cpuMaxMillis {
		return fmt.Errorf("%w: cpu %s: more than %d cores", ErrInvalidInput, quoted(l.CPU), cpuMaxMillis/1000)
	}
	for _, field := range []struct {
		name, value string
		bytes       func() (int64, error)
	}{{"memory", l.Memory, l.MemoryBytes}, {"storage", l.Storage, l.StorageBytes}} {
		n, err := field.bytes()
		if err != nil {
			return err
		}
		if field.value != "" && (n < bytesMin || n > bytesMax) {
			return fmt.Errorf("%w: %s %s: not 1Mi to 1Pi of bytes", ErrInvalidInput, field.name, quoted(field.value))
		}
	}
	if l.PIDs < 0 || l.PIDs > pidsMax {
		return fmt.Errorf("%w: pids %d: not 1 to %d", ErrInvalidInput, l.PIDs, pidsMax)
	}
	if l.Lifetime < 0 || l.Lifetime > lifetimeMax {
		return fmt.Errorf("%w: lifetime %s: negative or more than %s", ErrInvalidInput, l.Lifetime, lifetimeMax)
	}
	return nil
}

// CPUMillis is CPU in thousandths of a core, rounded up; zero when it is not set. The error
// matches ErrInvalidInput: no quantity, not positive, or too large for an int64.
func (l Limits) CPUMillis() (int64, error) { return parseQuantity("cpu", l.CPU, 1000) }

// MemoryBytes is Memory in bytes, rounded up; zero when it is not set. Errors are CPUMillis's.
func (l Limits) MemoryBytes() (int64, error) { return parseQuantity("memory", l.Memory, 1) }

// StorageBytes is Storage in bytes, rounded up; zero when it is not set. Errors are CPUMillis's.
func (l Limits) StorageBytes() (int64, error) { return parseQuantity("storage", l.Storage, 1) }

// parseQuantity reads a Kubernetes quantity (digits, perhaps with a decimal point, then Ki to
// Ei, n to E or an exponent) and returns it times scale, rounded up.
func parseQuantity(name, quantity string, scale int64) (int64, error) {
	if quantity == "" {
		return 0, nil
	}
	invalid := func(reason string) (int64, error) {
		return 0, fmt.Errorf("%w: %s %s: %s", ErrInvalidInput, name, quoted(quantity), reason)
	}
	const what = `not a Kubernetes quantity such as "500m", "2" or "4Gi"`
	if len(quantity) > 64 {
		return invalid(what)
	}
	digits := strings.TrimPrefix(quantity, "+")
	negative := strings.HasPrefix(digits, "-")
	digits = strings.TrimPrefix(digits, "-")
	if negative && strings.HasPrefix(quantity, "+") {
		return invalid(what)
	}
	suffix := strings.TrimLeft(digits, "0123456789.")
	digits = digits[:len(digits)-len(suffix)]
	whole, fraction, _ := strings.Cut(digits, ".")
	if whole+fraction == "" || strings.Contains(fraction, ".") {
		return invalid(what)
	}
	value, ok := new(big.Rat).SetString("0" + whole + "." + fraction + "0")
	unit := quantityUnit(suffix)
	if !ok || unit == nil {
		return invalid(what)
	}
	if negative || value.Sign() == 0 {
		return invalid("not positive")
	}
	value.Mul(value, unit)
	value.Mul(value, new(big.Rat).SetInt64(scale))
	n, rest := new(big.Int).QuoRem(value.Num(), value.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return invalid("too large")
	}
	return n.Int64(), nil
}

// quantityUnit is what a quantity's suffix multiplies by, or nil.
func quantityUnit(suffix string) *big.Rat {
	power := func(base, exponent int64) *big.Rat {
		n := new(big.Int).Exp(big.NewInt(base), big.NewInt(max(exponent, -exponent)), nil)
		if exponent < 0 {
			return new(big.Rat).SetFrac(big.NewInt(1), n)
		}
		return new(big.Rat).SetInt(n)
	}
	if suffix == "" {
		return power(10, 0)
	}
	if i := strings.Index("KiMiGiTiPiEi", suffix); len(suffix) == 2 && i >= 0 && i%2 == 0 {
		return power(1024, int64(i/2+1))
	}
	if i := strings.Index("num kMGTPE", suffix); len(suffix) == 1 && i >= 0 && suffix != " " {
		return power(1000, int64(i-3))
	}
	if suffix[0] != 'e' && suffix[0] != 'E' {
		return nil
	}
	exponent, err := strconv.ParseInt(suffix[1:], 10, 8)
	if err != nil {
		return nil
	}
	return power(10, exponent)
}
