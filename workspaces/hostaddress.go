package workspaces

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// specialRanges are the parts of the address space that lead to this host, to its network or to nobody,
// from IANA's registries of special-purpose addresses. Of IPv6 only 2000::/3 is assigned to the
// internet at all.
var specialRanges = func() []netip.Prefix {
	var all []netip.Prefix
	for _, prefix := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"::/3", "4000::/2", "8000::/1",
		"2001::/23",     // Teredo, which holds an IPv4 address, and other protocols
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4, which holds an IPv4 address
		"3fff::/20",     // documentation
	} {
		all = append(all, netip.MustParsePrefix(prefix))
	}
	return all
}()

// nat64 is where a network without IPv4 finds the internet's IPv4 addresses: in the last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// isPublic says that an address is one of the internet's, so that contacting it tells a stranger nothing
// that he could not find out himself.
func isPublic(address netip.Addr) bool {
	address = address.Unmap()
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	for _, special := range specialRanges {
		if special.Contains(address) {
			return false
		}
	}
	return address.IsValid() && address.Zone() == ""
}

// mayContact says whether a fetch may connect to an address.
func (f *hostFetcher) mayContact(address netip.Addr) bool {
	address = address.Unmap()
	return isPublic(address) || f.options.AllowAddress != nil && f.options.AllowAddress(address)
}

// pin resolves the host of an https URL, once, and returns what makes git connect to those of its addresses
// that it may contact and to nothing else: a value of http.curloptResolve, or nothing for a URL
// that names an address. A host all of whose addresses are refused is ErrInvalidInput; the error names
// none of them, for they say something of the network.
func (f *hostFetcher) pin(ctx context.Context, repository string) (string, error) {
	parsed, err := url.Parse(repository)
	if err != nil {
		return "", fmt.Errorf("%w: repository: not a URL", ErrInvalidInput)
	}
	host, port := parsed.Hostname(), parsed.Port()
	if port == "" {
		port = "443"
	}
	refused := fmt.Errorf("%w: repository %s: its host is not on the internet, and HostFetch.AllowAddress does not permit its address", ErrInvalidInput, repository)
	if literal, err := netip.ParseAddr(host); err == nil {
		if !f.mayContact(literal) {
			return "", refused
		}
		return "", nil
	}
	addresses, err := f.lookup(ctx, "ip", host)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil || len(addresses) == 0 {
		// Not what the resolver says, which names servers of the network.
		return "", &CheckoutError{Step: "fetch", Repository: repository, ExitCode: 128, Stderr: "could not resolve host: " + host}
	}
	var pinned []string
	for _, address := range addresses {
		if !f.mayContact(address) {
			continue
		}
		if address = address.Unmap(); address.Is6() {
			pinned = append(pinned, "["+address.String()+"]")
		} else {
			pinned = append(pinned, address.String())
		}
	}
	if len(pinned) == 0 {
		return "", refused
	}
	return host + ":" + port + ":" + strings.Join(pinned, ","), nil
}
