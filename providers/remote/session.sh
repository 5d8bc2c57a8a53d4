# carrel-session
# One shell that waits on its standard input for one call, makes it, reports, and ends. It is started ahead of time as
# `sh -c SESSION carrel ROOT`, by dash as well as bash: what takes time is done while it waits.
#
# Descriptors 3 and 4 lead through a relay each to the two streams. Once nobody reads them any more, the relays drain: a
# job in the background neither blocks nor dies of SIGPIPE. A call ends with a report on both streams; it goes
# through the same pipes as what the command wrote, so it comes after that, and before what its jobs write later.

relay() {
	trap : TERM
	cat
	cat >/dev/null
	exit 0
}

# finish WORD: the report, on both streams, and the end, once whoever reads has read it or is no more.
finish() {
	trap - EXIT
	printf '\001%s %s %s %s %s %s\n' "$_c_nonce" "$1" "$_c_began" "$_c_now" "$_c_oom_before" "$_c_oom" >&3
	printf '\001%s %s %s %s %s %s\n' "$_c_nonce" "$1" "$_c_began" "$_c_now" "$_c_oom_before" "$_c_oom" >&4
	while IFS= read -r _c_line; do :; done
	# The relays' cats, whose group this is.
	[ "$_c_own_group" != "$$" ] || kill -s TERM 0
	exit 0
}

# look reads the clock and how many processes the kernel has killed for memory.
look() {
	_c_now=- _c_oom=-
	read -r _c_now _c_line </proc/uptime || :
	[ -n "$_c_oom_file" ] || return 0
	while read -r _c_key _c_value; do
		[ "$_c_key" != oom_kill ] || _c_oom=$_c_value
	done <"$_c_oom_file"
}

# begin NONCE ID LATEST: takes the call, which nobody else may then, unless it comes too late.
begin() {
	_c_nonce=$1 _c_id=$2
	look
	_c_began=$_c_now _c_oom_before=$_c_oom
	[ "${_c_now%.*}" -le "$3" ] || finish late
	claim && return 0
	[ -e "$_c_claims/$_c_id" ] && finish claimed
	mkdir -p -m 1777 -- "$_c_claims"
	claim || finish claimed
}

# claim opens a file with O_EXCL and forks nothing. It holds who has won, unless the disk is full.
claim() {
	set -C
	{ printf '%s\n' "$_c_self" || :; } >"$_c_claims/$_c_id"
	_c_code=$?
	set +C
	return "$_c_code"
}

# claimed: whoever has won the claim is still about it. One that has not said yet who it is counts as such once.
claimed() {
	_c_holder=
	read -r _c_holder <"$_c_claims/$_c_id" || [ -n "$_c_holder" ] || { [ "$_c_rounds" = 1 ] && [ -e "$_c_claims/$_c_id" ]; return $?; }
	[ "$_c_holder" != "$_c_self" ] && stat_of "$_c_holder" && is_session "$_c_holder"
}

# inside: the current directory is the root or below it.
inside() {
	case $PWD/ in "$_c_root"/*) return 0 ;; esac
	return 1
}

# command_of NAME: 0 where the command would find a program of that name, 1 where none, 2 where it cannot be executed.
command_of() {
	case $1 in
	*/*)
		[ -e "$1" ] || return 1
		[ -x "$1" ] && [ ! -d "$1" ] || return 2
		return 0
		;;
	esac
	_c_code=1
	set -f
	IFS=:
	for _c_dir in $PATH; do
		[ -f "${_c_dir:-.}/$1" ] || continue
		[ ! -x "${_c_dir:-.}/$1" ] || { _c_code=0; break; }
		_c_code=2
	done
	unset IFS
	set +f
	return "$_c_code"
}

# run SECONDS DIR FEED PATH ARGV...: one command, after begin. FEED 1: its standard input follows, in
# chunks. The program is the first argument after those of env, if it goes through env.
run() {
	_c_seconds=$1 _c_feed=$3 _c_program=$4
	cd -P -- "$_c_root/$2" && inside || finish nodir
	unset OLDPWD
	shift 4
	PATH=$_c_path
	command_of "$_c_program" || case $? in
	1) printf '%s: not found\n' "$_c_program" >&4; look; finish 127 ;;
	*) printf '%s: permission denied\n' "$_c_program" >&4; look; finish 126 ;;
	esac
	CARREL_EXEC=$_c_id
	export CARREL_EXEC
	# A shell that cannot fork gives up; the report says that it was not the command. Else what the shell has to
	# say of the command's end, "Killed" say, goes where all goes that it says: nowhere.
	trap 'look; finish nofork' EXIT
	if [ "$_c_feed" = 1 ]; then
		exec 7<&0
		feed 3>&- 4>&- | {
			trap - EXIT
			(exec "$_c_timeout" -k 5 "$_c_seconds" "$@" 7<&- >&3 2>&4 3>&- 4>&-)
			_c_code=$?
			exec <&7
			look
			finish "$_c_code"
		}
	else
		(exec "$_c_timeout" -k 5 "$_c_seconds" "$@" </dev/null >&3 2>&4 3>&- 4>&-)
		_c_code=$?
		look
		finish "$_c_code"
	fi
	trap - EXIT
	exit 0
}

# feed copies chunks, each behind a line with its length, until one of length 0: the end of a
# transport's stdin cannot be relied on.
feed() {
	trap - EXIT
	while IFS= read -r _c_length && [ "$_c_length" -gt 0 ]; do
		"$_c_head" -c "$_c_length" || exit 0
	done
	exit 0
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
		if ! cd -P -- "./$_c_part"; then
			[ ! -d "./$_c_part" ] || finish denied
			[ ! -e "./$_c_part" ] && [ ! -L "./$_c_part" ] || finish nodirectory
			[ "$2" = 1 ] || finish absent
			_c_at=${PWD#"$_c_root"}/$_c_part${_c_rest:+/$_c_rest}/$_c_name
			wanted
			mkdir -- "./$_c_part" || [ -d "./$_c_part" ] || finish denied
			cd -P -- "./$_c_part" || finish denied
		fi
		inside || finish outside
	done
}

# wanted: a write for another place makes nothing and says where the path leads.
wanted() {
	_c_at=${_c_at#/}
	[ -n "$_c_wanted" ] && [ "$_c_at" != "$_c_wanted" ] || return 0
	printf %s "$_c_at" >&3
	finish moved
}

# find_file PATH MAKE: goes to the directory of a file, links resolved, and sets _c_name and _c_at.
find_file() {
	_c_target=$1 _c_links=0
	cd -P -- "$_c_root" || finish absent
	while :; do
		case $_c_target in
		"$_c_root" | /) finish directory ;;
		"$_c_root"/*) _c_target=${_c_target#"$_c_root"/}; cd -P -- "$_c_root" || finish absent ;;
		/*) finish outside ;;
		esac
		case $_c_target in
		*/*) _c_name=${_c_target##*/}; enter "${_c_target%/*}" "$2" ;;
		*) _c_name=$_c_target ;;
		esac
		case $_c_name in '' | . | ..) finish directory ;; esac
		[ -L "./$_c_name" ] || break
		_c_links=$((_c_links + 1))
		[ "$_c_links" -le 40 ] || finish loop
		_c_target=$(readlink -- "./$_c_name" && printf .) || finish absent
		_c_target=${_c_target%??}
	done
	_c_at=${PWD#"$_c_root"}/$_c_name
}

# read_file PATH LIMIT: the file's bytes, one more than LIMIT at most.
read_file() {
	find_file "$1" 0
	[ -e "./$_c_name" ] || finish absent
	[ ! -d "./$_c_name" ] || finish directory
	[ -f "./$_c_name" ] || finish special
	[ -r "./$_c_name" ] || finish denied
	dd if="./$_c_name" iflag=nofollow,nonblock,count_bytes,fullblock count="$(($2 + 1))" bs=65536 status=none >&3 || finish unreadable
	finish ok
}

# write_file PATH LENGTH AT: LENGTH bytes follow. With AT, only where PATH leads there; elsewhere the place it
# leads to is on the first stream.
write_file() {
	umask 022
	_c_length=$2 _c_wanted=$3
	find_file "$1" 1
	wanted
	_c_mode=644
	if [ -e "./$_c_name" ]; then
		[ ! -d "./$_c_name" ] || finish directory
		[ -f "./$_c_name" ] || finish special
		_c_mode=$(stat -c %a -- "./$_c_name") || finish absent
		# Root may write whatever the mode; the rule is the mode's.
		case $_c_mode in
		*[2367] | *[2367]? | *[2367]??) [ -w "./$_c_name" ] || finish denied ;;
		*) finish denied ;;
		esac
	fi
	# Below .git nobody lists or diffs it, and the rename is atomic.
	_c_staging=.
	[ ! -d "$_c_root/.git" ] || [ -L "$_c_root/.git" ] || _c_staging=$_c_root/.git
	for _c_old in "$_c_staging"/.carrel-write.*; do
		[ ! -f "$_c_old" ] || [ -d "/proc/${_c_old##*.}" ] || rm -f -- "$_c_old"
	done
	_c_new=$_c_staging/.carrel-write.$$
	rm -f -- "$_c_new"
	true >"$_c_new" || finish denied
	head -c "$_c_length" >"$_c_new" || { rm -f -- "$_c_new"; finish full; }
	[ "$(stat -c %s -- "$_c_new")" = "$_c_length" ] || { rm -f -- "$_c_new"; finish short; }
	[ ! -e "./$_c_name" ] || [ -O "./$_c_name" ] || chown --reference="./$_c_name" -- "$_c_new" || :
	chmod -- "$_c_mode" "$_c_new" || { rm -f -- "$_c_new"; finish denied; }
	mv -fT -- "$_c_new" "./$_c_name" || { rm -f -- "$_c_new"; finish denied; }
	finish ok
}

# stat_of PID: state, parent, group and start of a living process. Builtins only, as all of stop: it has to work
# where no process can be made any more.
stat_of() {
	_c_line=
	read -r _c_line <"/proc/$1/stat" || [ -n "$_c_line" ] || return 1
	_c_line=${_c_line##*) }
	set -f
	set -- $_c_line
	set +f
	[ $# -ge 20 ] || return 1
	_c_parent=$2 _c_group=$3 _c_start=${20}
	[ "$1" != Z ] && [ "$1" != X ]
}

# mark_of PID: which command's id the process has in its environment, if any.
mark_of() {
	_c_mark= _c_text=
	while IFS= read -r _c_line || [ -n "$_c_line" ]; do
		_c_text=$_c_text$_c_line
		_c_line=
	done <"/proc/$1/environ"
	case $_c_text in *CARREL_EXEC=*) _c_mark=${_c_text##*CARREL_EXEC=}; _c_mark=${_c_mark%"${_c_mark#????????????????}"} ;; esac
}

# is_session PID: a session's shell, or one that it has forked.
is_session() {
	_c_line=
	read -r _c_line <"/proc/$1/cmdline" || :
	case $_c_line in *'# carrel-session'*) return 0 ;; esac
	return 1
}

# stop SINCE: takes the call _c_id, so that what has not begun never will. Then one round for each line SIGNAL UNTIL: signals
# what is alive of the command, found by id, ancestry and group and, where no other ran from SINCE to UNTIL, by age, and says
# how many that were, its session among them. UNTIL 0: others ran.
stop() {
	claim || [ -e "$_c_claims/$_c_id" ] || { mkdir -p -m 1777 -- "$_c_claims" && claim; }
	_c_groups=' ' _c_rounds=0
	while IFS=' ' read -r _c_signal _c_until; do
		_c_rounds=$((_c_rounds + 1))
		_c_pids=' ' _c_all= _c_older=0 _c_strangers=
		for _c_dir in /proc/[0-9]*; do
			_c_pid=${_c_dir#/proc/}
			[ "$_c_pid" != 1 ] && stat_of "$_c_pid" || continue
			mark_of "$_c_pid"
			[ -n "$_c_mark" ] || ! is_session "$_c_pid" || continue
			if [ "$_c_mark" = "$_c_id" ]; then
				_c_pids="$_c_pids$_c_pid "
				case $_c_groups in *" $_c_group "*) ;; *) _c_groups="$_c_groups$_c_group " ;; esac
			fi
			_c_all="$_c_all $_c_pid:$_c_parent:$_c_group:$_c_start:$_c_mark"
		done
		_c_more=1
		while [ "$_c_more" = 1 ]; do
			_c_more=0
			for _c_entry in $_c_all; do
				split "$_c_entry"
				case $_c_pids in *" $_c_pid "*) continue ;; esac
				[ -z "$_c_mark" ] || continue
				case $_c_pids in *" $_c_parent "*) _c_pids="$_c_pids$_c_pid " _c_more=1; continue ;; esac
				case $_c_groups in *" $_c_group "*) _c_pids="$_c_pids$_c_pid " _c_more=1 ;; esac
			done
		done
		if [ "$_c_until" != 0 ]; then
			for _c_entry in $_c_all; do
				split "$_c_entry"
				case $_c_pids in *" $_c_pid "*) continue ;; esac
				is_session "$_c_parent" && continue # a relay's cat
				if [ "$_c_start" -lt "$1" ]; then
					# The cat of a relay that has ended meanwhile has ended before.
					! stat_of "$_c_pid" || _c_older=1
				elif [ "$_c_start" -lt "$_c_until" ]; then
					[ -n "$_c_mark" ] || _c_strangers="$_c_strangers$_c_pid "
				fi
			done
			[ "$_c_older" = 1 ] || _c_pids=$_c_pids$_c_strangers
		fi
		_c_count=0
		! claimed || _c_count=1
		# What is stopped starts nothing while its kin are killed.
		[ "$_c_signal" != KILL ] || for _c_pid in $_c_pids; do kill -s STOP "$_c_pid"; done
		for _c_pid in $_c_pids; do
			_c_count=$((_c_count + 1))
			[ "$_c_signal" = 0 ] || kill -s "$_c_signal" "$_c_pid"
		done
		printf '%s\n' "$_c_count" >&3
	done
	exit 0
}

split() {
	_c_pid=${1%%:*}
	set -- "${1#*:}"
	_c_parent=${1%%:*}
	set -- "${1#*:}"
	_c_group=${1%%:*}
	set -- "${1#*:}"
	_c_start=${1%%:*} _c_mark=${1#*:}
}

# session waits for a call and makes it. The first line says how many lines, or else how many bytes, the call has:
# a short one is read without making a process.
session() {
	trap : TERM
	stat_of "$$" && _c_own_group=$_c_group
	read -r _c_self _c_line </proc/self/stat
	look
	printf '\001ready %s\n' "$_c_now" >&4
	IFS=' ' read -r _c_unit _c_size || exit 0
	_c_call=
	if [ "$_c_unit" = lines ]; then
		while [ "$_c_size" -gt 0 ]; do
			IFS= read -r _c_line || exit 0
			_c_call=$_c_call$_c_line'
'
			_c_size=$((_c_size - 1))
		done
	else
		_c_call=$("$_c_head" -c "$_c_size" && printf .)
		_c_call=${_c_call%.}
	fi
	eval "$_c_call"
	exit 0
}

trap : TERM
unset CDPATH ENV BASH_ENV CARREL_EXEC
_c_root=$1 _c_nonce= _c_began=- _c_now=- _c_oom_before=- _c_oom=- _c_own_group= _c_self=
_c_claims=/tmp/.carrel-claims
_c_path=$PATH
PATH=/usr/bin:/bin:/usr/sbin:/sbin:$PATH
_c_timeout=$(command -v timeout) _c_head=$(command -v head)
_c_oom_file=
for _c_file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
	[ ! -r "$_c_file" ] || { _c_oom_file=$_c_file; break; }
done
exec 5>&1 6>&2
{ { exec 4>&1 >/dev/null 2>&1 5>&- 6>&-; session; } | relay >&6 2>/dev/null 3>&- 5>&- 6>&-; } 3>&1 | relay >&5 2>/dev/null 5>&- 6>&-
exit 0
