// Package k8s makes workspaces that are pods of a Kubernetes cluster: one hardened pod each, with ephemeral volumes of its own,
// that ends at the workspace's expiry even when nobody is left to delete it.
//
// What is enforced, and by what: Pod Security restricted (the hardened profile) or baseline ([Toolchain]) by the pod's security
// context; cpu, memory and ephemeral storage by the kubelet; nothing of the cluster's inside: no service account token, no
// service links; output, timeouts and the stop of commands by package remote.
//
// What is not: the network (deploy/ has a policy, which takes a network plugin that enforces policies) and the number of
// processes (the kubelet's podPidsLimit; a limit that is asked for is refused).
//
// The rights that the provider needs are those of deploy/, in the one namespace it works in. An image needs sh, git and GNU
// coreutils 8.31 or newer. Create tries them out and names what is missing.
package k8s
