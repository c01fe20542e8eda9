//! The arguments of the plugin.

use std::collections::BTreeMap;

use crate::decode::RecordedArch;

/// The options of a recording: its subject, its source and its log.
pub struct Setup {
    /// The architecture.
    pub arch: RecordedArch,
    /// The number of CPUs.
    pub cpus: u16,
    /// The physical address of the mailbox.
    pub mailbox: u64,
    /// The file that is the guest's memory.
    pub ram: String,
    /// The physical address of its first byte.
    pub base: u64,
    /// The log.
    pub out: String,
    /// Accesses to the lower half are recorded, too.
    pub accesses: bool,
}

impl Setup {
    /// Reads arguments `name=value`.
    ///
    /// # Errors
    ///
    /// Says which argument is missing, not known or wrong.
    pub fn read(arguments: &[String]) -> Result<Setup, String> {
        let mut given = BTreeMap::new();
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or(format!("{argument} has no value"))?;
            given.insert(name, value);
        }
        let mut take = |name| given.remove(name).ok_or(format!("{name}= is missing"));
        let setup = Setup {
            arch: match take("arch")? {
                "x86_64" => RecordedArch::X86_64,
                "riscv64" => RecordedArch::Riscv64,
                other => return Err(format!("arch={other}: there are x86_64 and riscv64")),
            },
            cpus: take("cpus")?.parse().map_err(|e| format!("cpus=: {e}"))?,
            mailbox: address("mailbox", take("mailbox")?)?,
            ram: take("ram")?.to_owned(),
            base: address("base", take("base")?)?,
            out: take("out")?.to_owned(),
            // QEMU passes a name without a value on as `name=on`.
            accesses: take("accesses").is_ok_and(|value| value == "on"),
        };
        match given.keys().next() {
            Some(name) => Err(format!("argument {name}= is not known")),
            None => Ok(setup),
        }
    }
}

fn address(name: &str, text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|e| format!("{name}={text}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Setup, String> {
        Setup::read(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read_and_mistakes_are_named() {
        let good = "arch=riscv64,cpus=2,mailbox=0x80201000,ram=/r,base=80000000,out=/o";
        let setup = read(good).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((setup.mailbox, setup.base, setup.accesses), (0x8020_1000, 0x8000_0000, false));
        assert!(read(&format!("{good},accesses=on")).is_ok_and(|s| s.accesses));
        for (bad, what) in [
            (good.replace("riscv64", "vax"), "vax"),
            (good.replace(",out=/o", ""), "out= is missing"),
            (format!("{good},colour=red"), "colour= is not known"),
            (good.replace("80201000", "mail"), "mailbox=0xmail"),
        ] {
            assert!(read(&bad).is_err_and(|e| e.contains(what)), "{bad}");
        }
    }
}
