# Says on standard output, a line each, what of what a session needs is missing or behaves wrongly; the last line is "done".
trap 'echo done' EXIT
dir=$1
for name in git cat timeout head dd mkdir stat readlink mv chmod rm env sleep; do
	command -v "$name" >/dev/null 2>&1 || echo "$name is missing"
done
cd "$dir" || { echo "$dir cannot be entered"; exit 0; }
[ -r /proc/uptime ] && [ -r "/proc/$$/environ" ] || echo "/proc is not mounted"
try=$(mktemp -d "${TMPDIR:-/tmp}/.carrel-test.XXXXXX") || { echo "nothing can be written in ${TMPDIR:-/tmp}"; exit 0; }
cd "$try" || exit 0
{ printf 'abc' | { head -c 1 >/dev/null; head -c 1; }; } >first 2>/dev/null
[ "$(cat first)" = b ] || echo "head -c reads more than it was asked for"
printf abc >file
[ "$(dd if=file iflag=nofollow,nonblock,count_bytes,fullblock count=2 bs=65536 status=none 2>/dev/null)" = ab ] || echo "dd does not know iflag=nofollow,nonblock,count_bytes,fullblock"
ln -s file link
dd if=link iflag=nofollow status=none >/dev/null 2>&1 && echo "dd follows links with iflag=nofollow"
[ "$(stat -c %a:%s file 2>/dev/null)" = "$(chmod 640 file; echo 640:3)" ] || { chmod 640 file; [ "$(stat -c %a:%s file 2>/dev/null)" = 640:3 ] || echo "stat does not know -c"; }
mkdir dir
mv -fT file dir 2>/dev/null && echo "mv -T moves a file into a directory"
mkdir -p -m 1777 claims || echo "mkdir does not know -m"
stubborn='trap "" TERM; n=0; while [ $((n += 1)) -lt 200 ]; do sleep 0.05; done'
timeout -k 0.2 0.2 sh -c "$stubborn & echo \$! >child; $stubborn" >/dev/null 2>&1
case $? in 124 | 137) ;; *) echo "timeout -k does not report a command that it killed" ;; esac
# A busy machine takes its time to kill.
alive() { { read -r line <"/proc/$child/stat"; } 2>/dev/null && case ${line##*) } in Z* | X*) false ;; esac; }
n=0
read -r child <child && while alive && [ $((n += 1)) -lt 50 ]; do sleep 0.1; done && alive && {
	echo "timeout -k leaves the children of a command alive"
	kill -9 "$child"
}
cd / && rm -rf "$try"
exit 0
