package workspaces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimits_R4_Quantities(t *testing.T) {
	for quantity, want := range map[string]int64{
		"": 0, "1Mi": 1 << 20, "4Gi": 4 << 30, "1.5Gi": 3 << 29, "1e9": 1_000_000_000, "2E6": 2_000_000, "1000M": 1_000_000_000, "1k": 1000, "+5k": 5000,
		"1Ti": 1 << 40, "1500m": 2, "1n": 1, ".5k": 500, "1.k": 1000,
	} {
		got, err := Limits{Memory: quantity}.MemoryBytes()
		require.NoError(t, err, quantity)
		require.Equal(t, want, got, quantity)
	}
	for quantity, want := range map[string]int64{"500m": 500, "2": 2000, "0.1": 100, "1u": 1, "1.0005": 1001} {
		got, err := Limits{CPU: quantity}.CPUMillis()
		require.NoError(t, err, quantity)
		require.Equal(t, want, got, quantity)
	}
	for _, quantity := range []string{"0", "-1", "+-1", "x", "1x", "1KiB", "1 Gi", "Gi", "1e", "1e999", "NaN", "Inf", "1..2", "1Gi2", "9999999999999999999E", "0x10", "1,5"} {
		_, err := Limits{Memory: quantity}.MemoryBytes()
		require.ErrorIs(t, err, ErrInvalidInput, quantity)
	}
}

func TestLimits_R4_AreFiniteAndLayered(t *testing.T) {
	require.NoError(t, Limits{}.Validate())
	require.NoError(t, DefaultLimits().Validate())
	for _, l := range []Limits{
		{CPU: "1001"}, {Memory: "512m"}, {Memory: "2Pi"}, {Storage: "1"}, {PIDs: -1}, {PIDs: 1 << 23}, {Lifetime: -1}, {Lifetime: 31 * 24 * time.Hour}, {Memory: "lots"},
	} {
		require.ErrorIs(t, l.Validate(), ErrInvalidInput, "%+v", l)
	}
	require.Equal(t,
		Limits{CPU: "2", Memory: "4Gi", Storage: "1Gi", PIDs: 7, Lifetime: Lifetime},
		Limits{CPU: "2", PIDs: 7}.Over(Limits{CPU: "8", Memory: "4Gi"}).Over(Limits{Storage: "1Gi"}).Over(Limits{Lifetime: Lifetime, Memory: "1Gi"}))
}

func FuzzLimits_R4(f *testing.F) {
	for _, seed := range []string{"1", "500m", "4Gi", "1e3", "-1", "1.5Ti", "999999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, quantity string) {
		bytes, err := Limits{Memory: quantity}.MemoryBytes()
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidInput)
			return
		}
		require.True(t, quantity == "" && bytes == 0 || bytes > 0)
		if (Limits{Memory: quantity}).Validate() == nil && quantity != "" {
			require.LessOrEqual(t, int64(bytesMin), bytes)
			require.LessOrEqual(t, bytes, int64(bytesMax))
		}
	})
}
