//! `headwater enroll`: the authority of a site, its members' certificates, and the broker's files.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headwater_identity::{BrokerOptions, EnrollError, Issued, Member, PageRights, Role, Site};
use headwater_protocol::{GroupId, SiteId};

use crate::{BadUsage, print};

/// Arguments of `headwater enroll`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater enroll init --site hall --host broker.hall.example --host 10.0.0.5
  headwater enroll add device --group gate cam-0 cam-1 cam-2
  headwater enroll add leader --group gate
  headwater enroll add cloud --host cloud.example
  headwater enroll page --frames gate yard
  mosquitto -c site/broker/mosquitto.conf
  headwater enroll revoke --group gate cam-1          then: kill -HUP of the broker
Copy each member's folder to its machine and name its files in section [tls] of its settings (docs/security.md).
The folder with authority.key is the site's secret: keep it off the machines that it certifies.")]
pub struct EnrollArgs {
    /// Folder of the site.
    #[arg(long, global = true, value_name = "DIR", default_value = "site", env = "HEADWATER_SITE_DIR")]
    pub dir: PathBuf,
    /// The action.
    #[command(subcommand)]
    pub command: EnrollCommand,
}

/// Subcommands of `headwater enroll`.
#[derive(Debug, Subcommand)]
pub enum EnrollCommand {
    /// Make a site: its authority, the broker's certificate, Mosquitto's configuration and access rules.
    Init {
        /// Name of the site, as in topics.
        #[arg(long)]
        site: SiteId,
        /// Host name or address of the broker, as clients call it. May be given several times.
        #[arg(long, required = true, value_name = "HOST")]
        host: Vec<String>,
        /// Port of the broker.
        #[arg(long, default_value_t = 8883)]
        port: u16,
        /// Address that the broker listens on; every interface by default.
        #[arg(long, value_name = "ADDRESS", default_value = "")]
        listen: String,
        /// Folder of the broker's files on the broker's machine, if that is another machine: copy the site's folder `broker` there.
        #[arg(long, value_name = "DIR")]
        broker_dir: Option<PathBuf>,
        /// Validity of the certificates.
        #[command(flatten)]
        days: Days,
    },
    /// Give members their certificates and keys.
    Add {
        /// Role of the members.
        #[arg(value_parser = role_parser())]
        role: Role,
        /// Names: the ids of devices or edges. Left out: the role, for a leader, the cloud or an operator.
        names: Vec<String>,
        /// Group of the members.
        #[arg(long)]
        group: Option<GroupId>,
        /// Host name or address that clients call; for the cloud. May be given several times.
        #[arg(long, value_name = "HOST")]
        host: Vec<String>,
        /// Validity of the certificates.
        #[command(flatten)]
        days: Days,
    },
    /// Give a page of several groups its certificate and key. The page reads results, and the status and birth of devices.
    Page {
        /// The groups.
        #[arg(required = true)]
        groups: Vec<GroupId>,
        /// Let the page see frames.
        #[arg(long)]
        frames: bool,
        /// Let the page trigger samples and change policies.
        #[arg(long)]
        act: bool,
        /// Name of the page.
        #[arg(long, default_value = Role::Page.name())]
        name: String,
        /// Validity of the certificate.
        #[command(flatten)]
        days: Days,
    },
    /// Give members new certificates and keys. The earlier ones stay valid until they expire.
    Renew {
        /// The members.
        #[command(flatten)]
        which: Which,
        /// For the broker or the cloud: host names or addresses in place of the earlier ones. May be given several times.
        #[arg(long, value_name = "HOST")]
        host: Vec<String>,
        /// Validity of the certificates.
        #[command(flatten)]
        days: Days,
    },
    /// Revoke every certificate of members. Their names are not given again.
    Revoke {
        /// The members.
        #[command(flatten)]
        which: Which,
    },
    /// List what was issued.
    List {
        /// One JSON object on stdout.
        #[arg(long)]
        json: bool,
    },
}

/// Validity of certificates.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Days {
    /// Days until the certificates expire.
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=7300))]
    pub days: u32,
}

/// Members by group and name.
#[derive(Clone, Debug, clap::Args)]
pub struct Which {
    /// Group of the members; left out for the broker, the cloud and pages.
    #[arg(long)]
    pub group: Option<GroupId>,
    /// Names of the members.
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// Reads a role of `enroll add`. The broker is enrolled by `enroll init`, and a page by `enroll page`.
fn role_parser() -> impl TypedValueParser<Value = Role> {
    let added = Role::all().filter(|role| !matches!(role, Role::Broker | Role::Page));
    let words = added.map(|role| PossibleValue::new(role.name()).help(role.help()));
    PossibleValuesParser::new(words).map(|word| Role::named(&word).expect("one of the names above"))
}

/// Note after a change of the access rules, the list of revoked certificates or the broker's certificate.
const READ_AGAIN: &str =
    "the broker reads rules, certificate and revoked.crl of its folder again at: kill -HUP PID\n";

/// Runs the command.
///
/// # Errors
/// [`BadUsage`] for hosts, a port or an address that cannot work; otherwise the site, a name, or a file that cannot be used.
pub fn run(args: &EnrollArgs) -> Result<()> {
    execute(args).map_err(|error| match error.downcast_ref::<EnrollError>() {
        Some(mistake @ EnrollError::Setting { .. }) => BadUsage(format!("enroll: {mistake}")).into(),
        Some(_) | None => error,
    })
}

fn execute(args: &EnrollArgs) -> Result<()> {
    match &args.command {
        EnrollCommand::Init { site, host, port, listen, broker_dir, days } => {
            let options = BrokerOptions { port: *port, address: listen.clone(), folder: broker_dir.clone() };
            let made = Site::create(&args.dir, site.clone(), host, &options, days.days)?;
            let own = made.folder_of(&made.member(None, Role::Broker.name())?);
            let broker = broker_dir.as_ref().unwrap_or(&own).display();
            print(&format!(
                "site {}: the broker's files are in {}\nstart the broker: mosquitto -c {broker}/mosquitto.conf\n",
                made.name(),
                own.display()
            ))
        }
        EnrollCommand::Add { role, names, group, host, days } => {
            let role = *role;
            if let (Some(group), false) = (group, role.has_group()) {
                return Err(BadUsage(format!(
                    "enroll: `--group` is not for the {}, which serves all groups of the site; leave out --group {group}",
                    role.name()
                ))
                .into());
            }
            let mut site = Site::open(&args.dir)?;
            let is_named = !names.is_empty() || !role.names_members();
            let names = if is_named { names.clone() } else { vec![role.name().to_owned()] };
            if names.is_empty() {
                return Err(BadUsage(format!("{}: which names?", role.name())).into());
            }
            // All names are checked before the first member is enrolled.
            let members = names.into_iter().map(|name| Member::new(role, group.clone(), name));
            for member in members.collect::<Result<Vec<_>, _>>()? {
                let folder = site.enroll(member, host, days.days)?;
                print(&format!("{}\n", folder.display()))?;
            }
            if role.has_group() { print(READ_AGAIN) } else { Ok(()) }
        }
        EnrollCommand::Page { groups, frames, act, name, days } => {
            let groups = groups.iter().cloned().collect();
            let page = Member::page(name, PageRights { groups, frames: *frames, act: *act })?;
            let folder = Site::open(&args.dir)?.enroll(page, &[], days.days)?;
            print(&format!("{}\n{READ_AGAIN}", folder.display()))
        }
        EnrollCommand::Renew { which, host, days } => {
            let mut site = Site::open(&args.dir)?;
            let members = members(&site, which)?;
            for member in &members {
                let folder = site.renew(member, host, days.days)?;
                print(&format!("{}\n", folder.display()))?;
            }
            let has_broker = members.iter().any(|member| member.role == Role::Broker);
            if has_broker { print(READ_AGAIN) } else { Ok(()) }
        }
        EnrollCommand::Revoke { which } => {
            let mut site = Site::open(&args.dir)?;
            for member in members(&site, which)? {
                site.revoke(&member)?;
                print(&format!("{member}: revoked\n"))?;
            }
            print(READ_AGAIN)?;
            print(
                "members refuse a revoked broker or cloud, and the cloud its clients, with the new revoked.crl of their folders\n",
            )
        }
        EnrollCommand::List { json } => list(&Site::open(&args.dir)?, *json),
    }
}

/// The members with these names in the given group; without a group: the broker, the cloud and pages.
fn members(site: &Site, which: &Which) -> Result<Vec<Member>> {
    which.names.iter().map(|name| Ok(site.member(which.group.as_ref(), name)?)).collect()
}

fn list(site: &Site, json: bool) -> Result<()> {
    if json {
        let list = serde_json::json!({ "site": site.name(), "issued": site.issued() });
        return print(&format!("{list}\n"));
    }
    let mut text =
        format!("site {}\n{:<10} {:<28} {:<22} {}\n", site.name(), "role", "member", "expires", "state");
    let issued = site.issued();
    for (index, certificate) in issued.iter().enumerate() {
        let Issued { member, expires, revoked, .. } = certificate;
        let day = expires.split('T').next().unwrap_or_default();
        let rights = member.page.as_ref().map(|page| format!("; {page}")).unwrap_or_default();
        let is_renewed = issued[index + 1..].iter().any(|later| later.member == *member);
        let state = match revoked {
            Some(at) => format!("revoked {at}"),
            None if certificate.has_expired() => "expired".to_owned(),
            None if is_renewed => "valid, renewed since".to_owned(),
            None => "valid".to_owned(),
        };
        text += &format!("{:<10} {:<28} {day:<22} {state}{rights}\n", member.role.name(), member.to_string());
    }
    print(&text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Command};

    #[test]
    fn a_group_for_the_cloud_is_refused_by_its_flag() {
        let line = ["headwater", "enroll", "add", "cloud", "--group", "gate", "--host", "cloud.example"];
        let Command::Enroll(args) = Args::try_parse_from(line).unwrap().command else { panic!("enroll") };
        let error = super::run(&args).unwrap_err();
        assert!(error.is::<crate::BadUsage>(), "{error}");
        assert!(error.to_string().contains("`--group` is not for the cloud"), "{error}");
    }
}
