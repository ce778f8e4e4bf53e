//! The networks that the service is told to hold.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::bundle::{Bundle, Networks};

use crate::service::CloudError;

/// With the next network from a file, where the settings name one.
pub(crate) fn with_next(networks: Networks, file: Option<&Path>) -> Result<Networks, CloudError> {
    let Some(path) = file else { return Ok(networks) };
    if networks.next().is_some() {
        let found = path.display();
        return Err(mistake(&format!("expected one next network, found {found} beside one that is given")));
    }
    let next = Bundle::open(path)
        .map_err(|error| CloudError::Model(format!("opening the next bundle {}: {error}", path.display())))?;
    Networks::both(Arc::clone(networks.current()), Arc::new(next))
        .map_err(|error| mistake(&error.to_string()))
}

fn mistake(what: &str) -> CloudError {
    CloudError::Config(vec![format!("next_bundle: {what}")])
}
