# A session: one shell in the workspace that was started ahead of time, waits for one call on its standard input,
# answers it, and ends. It is run as `sh -c SESSION carrel ROOT`, by dash as well as bash.
#
# Everything that takes time is done while it waits. Between the arrival of a call and the start of
# the command no process is made but timeout and the command itself.
#
# What a call writes goes through a relay each for stdout and stderr. When nobody takes the output any
# more, the relays drain it: a background job neither blocks nor dies of SIGPIPE, whether or not
# anybody is still connected. The call ends with a report on both streams; being written into
# the same pipes, it comes after all that the command wrote, and before what its background jobs
# write later.

relay() {
	trap '' PIPE
	exec 2>/dev/null
	"$_c_cat"
	exec "$_c_cat" >/dev/null
}

# finish WORD: the report, on both streams, and the end.
finish() {
	trap - EXIT
	printf '\001%s %s %s %s %s %s\n' "$_c_nonce" "$1" "$_c_began" "$_c_now" "$_c_oom_before" "$_c_oom"
	printf '\001%s %s %s %s %s %s\n' "$_c_nonce" "$1" "$_c_began" "$_c_now" "$_c_oom_before" "$_c_oom" >&2
	exit 0
}

# look reads the clock and how many processes the kernel has killed for memory.
look() {
	read -r _c_now _ 2>/dev/null </proc/uptime || _c_now=-
	_c_oom=-
	[ -n "$_c_oom_file" ] || return 0
	while read -r _c_key _c_value; do
		[ "$_c_key" != oom_kill ] || _c_oom=$_c_value
	done <"$_c_oom_file"
}

# claim ID: true for the first caller only. The shell opens the file with O_EXCL and forks nothing.
claim() {
	set -C
	{ : >"$_c_claims/$1"; } 2>/dev/null && { set +C; return 0; }
	set +C
	[ ! -e "$_c_claims/$1" ] || return 1
	mkdir -p -m 1777 -- "$_c_claims" 2>/dev/null
	set -C
	{ : >"$_c_claims/$1"; } 2>/dev/null || { set +C; return 1; }
	set +C
}

# inside: the current directory is the root or below it.
inside() {
	case $PWD/ in
	"$_c_root"/*) return 0 ;;
	esac
	return 1
}

# run NONCE ID SECONDS DIR FEED ARGV...: one command. FEED 1: its standard input follows in chunks.
run() {
	_c_nonce=$1 _c_id=$2 _c_seconds=$3 _c_feed=$5
	cd -P -- "$_c_root/$4" 2>/dev/null && inside || finish nodir
	shift 5
	claim "$_c_id" || finish claimed
	case $1 in
	*/*)
		[ -e "$1" ] || missing "$1"
		[ -x "$1" ] && [ ! -d "$1" ] || forbidden "$1"
		;;
	*) command -v -- "$1" >/dev/null 2>&1 || missing "$1" ;;
	esac
	CARREL_EXEC=$_c_id
	export CARREL_EXEC
	look
	_c_began=$_c_now _c_oom_before=$_c_oom
	# A shell that cannot fork gives up, in its own words; the report says that it was not the command.
	trap 'look; finish nofork' EXIT
	if [ "$_c_feed" = 1 ]; then
		feed | {
			"$_c_timeout" -k 5 "$_c_seconds" "$@"
			_c_code=$?
			look
			finish "$_c_code"
		}
	else
		"$_c_timeout" -k 5 "$_c_seconds" "$@" </dev/null
		_c_code=$?
		look
		finish "$_c_code"
	fi
	trap - EXIT
	exit 0
}

missing() {
	printf '%s: not found\n' "$1" >&2
	look
	finish 127
}

forbidden() {
	printf '%s: permission denied\n' "$1" >&2
	look
	finish 126
}

# feed copies chunks, each behind a line with its length, until one of length 0: the
# end of a transport's stdin cannot be relied on.
feed() {
	trap - EXIT
	while IFS= read -r _c_length && [ "$_c_length" -gt 0 ]; do
		"$_c_head" -c "$_c_length" || exit 0
	done
}

# enter DIRECTORY MAKE: goes there, a component at a time, never outside the root. MAKE 1: makes what is missing.
enter() {
	_c_rest=$1
	while [ -n "$_c_rest" ]; do
		case $_c_rest in
		*/*) _c_part=${_c_rest%%/*} _c_rest=${_c_rest#*/} ;;
		*) _c_part=$_c_rest _c_rest= ;;
		esac
		[ -n "$_c_part" ] || continue
		if ! cd -P -- "./$_c_part" 2>/dev/null; then
			[ ! -e "./$_c_part" ] || { [ -d "./$_c_part" ] && finish denied; finish nodirectory; }
			[ ! -L "./$_c_part" ] || finish nodirectory
			[ "$2" = 1 ] || finish absent
			mkdir -- "./$_c_part" 2>/dev/null || [ -d "./$_c_part" ] || finish denied
			cd -P -- "./$_c_part" 2>/dev/null || finish denied
		fi
		inside || finish outside
	done
}

# find PATH MAKE: goes to the directory of a file, links resolved, and sets _c_name and _c_at.
find_file() {
	_c_path=$1 _c_links=0
	cd -P -- "$_c_root" 2>/dev/null || finish absent
	while :; do
		case $_c_path in
		"$_c_root") _c_path=. ;;
		"$_c_root"/*) _c_path=${_c_path#"$_c_root"/} ;;
		/*) finish outside ;;
		esac
		[ "${_c_links}" = 0 ] || case $_c_target in /*) cd -P -- "$_c_root" || finish absent ;; esac
		case $_c_path in
		*/*) _c_name=${_c_path##*/}; enter "${_c_path%/*}" "$2" ;;
		*) _c_name=$_c_path ;;
		esac
		case $_c_name in
		'' | .) finish directory ;;
		..) finish directory ;;
		esac
		[ -L "./$_c_name" ] || break
		_c_links=$((_c_links + 1))
		[ "$_c_links" -le 40 ] || finish loop
		_c_target=$(readlink -- "./$_c_name" && printf .) || finish absent
		_c_target=${_c_target%??}
		_c_path=$_c_target
	done
	_c_at=${PWD#"$_c_root"}/$_c_name
	_c_at=${_c_at#/}
}

# readfile NONCE PATH LIMIT: the file's bytes on stdout, one more than LIMIT at most.
readfile() {
	_c_nonce=$1
	find_file "$2" 0
	[ -e "./$_c_name" ] || finish absent
	[ ! -d "./$_c_name" ] || finish directory
	[ -f "./$_c_name" ] || finish special
	[ -r "./$_c_name" ] || finish denied
	"$_c_dd" if="./$_c_name" iflag=nofollow,nonblock,count_bytes,fullblock count="$(($3 + 1))" bs=65536 status=none 2>/dev/null || finish unreadable
	finish ok
}

# writefile NONCE PATH LENGTH AT: LENGTH bytes follow. With AT, only where PATH leads there; elsewhere
# the place it leads to is on stdout.
writefile() {
	_c_nonce=$1 _c_length=$3 _c_wanted=$4
	umask 022
	find_file "$2" 1
	if [ -n "$_c_wanted" ] && [ "$_c_at" != "$_c_wanted" ]; then
		printf %s "$_c_at"
		finish moved
	fi
	_c_mode=
	if [ -e "./$_c_name" ]; then
		[ ! -d "./$_c_name" ] || finish directory
		[ -f "./$_c_name" ] || finish special
		_c_mode=$(stat -c %a -- "./$_c_name") || finish absent
		# Root may write whatever the mode; the rule is the mode's.
		case $_c_mode in
		*[2367]??) ;;
		*) finish denied ;;
		esac
		[ -w "./$_c_name" ] || finish denied
	fi
	# Below .git nobody lists or diffs it. It is on the same file system: the rename is atomic.
	_c_staging=.
	[ ! -d "$_c_root/.git" ] || [ -L "$_c_root/.git" ] || _c_staging=$_c_root/.git
	for _c_old in "$_c_staging"/.carrel-write.*; do
		[ ! -e "$_c_old" ] || [ -d "/proc/${_c_old##*.}" ] || rm -f -- "$_c_old"
	done
	_c_new=$_c_staging/.carrel-write.$$
	"$_c_head" -c "$_c_length" 2>/dev/null >"$_c_new" || { rm -f -- "$_c_new"; finish full; }
	[ "$(stat -c %s -- "$_c_new")" = "$_c_length" ] || { rm -f -- "$_c_new"; finish short; }
	if [ -n "$_c_mode" ]; then
		[ -O "./$_c_name" ] || chown --reference="./$_c_name" -- "$_c_new" 2>/dev/null || :
		chmod -- "$_c_mode" "$_c_new" || { rm -f -- "$_c_new"; finish denied; }
	fi
	mv -fT -- "$_c_new" "./$_c_name" 2>/dev/null || { rm -f -- "$_c_new"; finish denied; }
	finish ok
}

# stat_of PID: sets state, parent, group and start of a process. Builtins only, as all of stop: it
# has to work where no process can be made any more.
stat_of() {
	_c_line=
	read -r _c_line 2>/dev/null <"/proc/$1/stat" || [ -n "$_c_line" ] || return 1
	_c_line=${_c_line##*) }
	set -- $_c_line
	[ $# -ge 20 ] || return 1
	_c_state=$1 _c_parent=$2 _c_group=$3 _c_start=${20}
	[ "$_c_state" != Z ] && [ "$_c_state" != X ]
}

# marked PID ID: the process has the command's id in its environment.
marked() {
	_c_text=
	while IFS= read -r _c_text 2>/dev/null || [ -n "$_c_text" ]; do
		case $_c_text in *"CARREL_EXEC=$2"*) return 0 ;; esac
		_c_text=
	done 2>/dev/null <"/proc/$1/environ"
	return 1
}

# ours PID: it is a session, a relay of one, or the workspace's keeper, or the shell that looks.
ours() {
	_c_text=
	IFS= read -r _c_text 2>/dev/null <"/proc/$1/cmdline" || :
	case $_c_text in
	*carrel-session*) return 0 ;;
	esac
	return 1
}

# stop NONCE ID SIGNAL GROUPS ALONE SINCE: signals what is left of command ID: by id, ancestry and
# group and, when it is ALONE, whatever is not older than SINCE. On stdout: how many, and their groups.
stop() {
	_c_nonce=$1 _c_id=$2 _c_signal=$3 _c_groups=$4 _c_alone=$5 _c_since=$6
	_c_pids=' ' _c_older=0 _c_strangers=
	_c_all=
	for _c_dir in /proc/[0-9]*; do
		_c_pid=${_c_dir#/proc/}
		[ "$_c_pid" != 1 ] && stat_of "$_c_pid" || continue
		if marked "$_c_pid" "$_c_id"; then
			_c_pids="$_c_pids$_c_pid "
			_c_mine=1
		else
			ours "$_c_pid" && continue
			_c_mine=0
		fi
		_c_all="$_c_all $_c_pid:$_c_parent:$_c_group:$_c_start:$_c_mine"
	done
	# The groups of what was found; never one that a session is in.
	for _c_entry in $_c_all; do
		split "$_c_entry"
		case $_c_mine in 1) case " $_c_groups " in *" $_c_group "*) ;; *) [ "$_c_group" = "$_c_own_group" ] || _c_groups="$_c_groups $_c_group" ;; esac ;; esac
	done
	_c_more=1
	while [ "$_c_more" = 1 ]; do
		_c_more=0
		for _c_entry in $_c_all; do
			split "$_c_entry"
			case $_c_pids in *" $_c_pid "*) continue ;; esac
			case $_c_pids in
			*" $_c_parent "*) _c_pids="$_c_pids$_c_pid " _c_more=1 ; continue ;;
			esac
			case " $_c_groups " in
			*" $_c_group "*) _c_pids="$_c_pids$_c_pid " _c_more=1 ;;
			esac
		done
	done
	if [ "$_c_alone" = 1 ] && [ -n "$_c_since" ]; then
		for _c_entry in $_c_all; do
			split "$_c_entry"
			case $_c_pids in *" $_c_pid "*) continue ;; esac
			# A relay's cat is a session's child.
			! ours "$_c_parent" || continue
			if [ "$_c_start" -ge "$_c_since" ]; then _c_strangers="$_c_strangers $_c_pid"; else _c_older=1; fi
		done
		[ "$_c_older" = 1 ] || _c_pids="$_c_pids$_c_strangers "
	fi
	_c_count=0
	for _c_pid in $_c_pids; do
		_c_count=$((_c_count + 1))
		[ "$_c_signal" != KILL ] || kill -s STOP "$_c_pid" 2>/dev/null
	done
	if [ "$_c_signal" != 0 ]; then
		for _c_pid in $_c_pids; do kill -s "$_c_signal" "$_c_pid" 2>/dev/null; done
	fi
	printf '%s%s' "$_c_count" "$_c_groups"
	finish ok
}

split() {
	_c_pid=${1%%:*}
	set -- "${1#*:}"
	_c_parent=${1%%:*}
	set -- "${1#*:}"
	_c_group=${1%%:*}
	set -- "${1#*:}"
	_c_start=${1%%:*} _c_mine=${1#*:}
}

# session waits for a call and makes it. The first line says how many lines, or else how many bytes, the call
# has: a short one is read without making a process.
session() {
	stat_of "$$" && _c_own_group=$_c_group
	printf '\001ready %s\n' "$_c_start" >&2
	IFS= read -r _c_unit _c_size || exit 0
	_c_call=
	if [ "$_c_unit" = lines ]; then
		while [ "$_c_size" -gt 0 ]; do
			IFS= read -r _c_text || exit 0
			_c_call=$_c_call$_c_text'
'
			_c_size=$((_c_size - 1))
		done
	else
		_c_call=$("$_c_head" -c "$_c_size" && printf .)
		_c_call=${_c_call%.}
	fi
	eval "$_c_call"
}

unset CDPATH ENV BASH_ENV
_c_root=$1 _c_nonce= _c_began=- _c_now=- _c_oom_before=- _c_oom=- _c_start= _c_group= _c_own_group=
_c_claims=/tmp/.carrel-claims
_c_path=$PATH
PATH=/usr/bin:/bin:/usr/sbin:/sbin:$PATH
_c_cat=$(command -v cat) _c_timeout=$(command -v timeout) _c_head=$(command -v head) _c_dd=$(command -v dd)
_c_oom_file=
for _c_file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
	[ ! -r "$_c_file" ] || { _c_oom_file=$_c_file; break; }
done
{ { session 2>&1 >&3 3>&- | relay >&2 3>&-; } 3>&1 | relay; }
